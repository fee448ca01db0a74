"use strict";
(() => {
  const root = document.documentElement, main = document.querySelector("main");
  const kept = {
    get: () => { try { return localStorage.getItem("shoal-theme"); } catch { return null; } },
    set: (value) => { try { localStorage.setItem("shoal-theme", value); } catch { /* a file may have no storage */ } },
  };
  if (kept.get()) root.dataset.theme = kept.get();
  main.addEventListener("click", (event) => {
    if (event.target.matches(".theme")) {
      const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
      root.dataset.theme = dark ? "light" : "dark";
      kept.set(root.dataset.theme);
    } else if (event.target.matches(".copy")) {
      const text = event.target.parentElement.querySelector("pre").textContent;
      const done = () => { event.target.textContent = "Copied"; setTimeout(() => { event.target.textContent = "Copy"; }, 1500); };
      navigator.clipboard?.writeText(text).then(done, () => {});
    }
  });
  if (!("live" in main.dataset)) return;
  let tag = null, misses = 0;
  const refresh = async () => {
    let ended = false;
    try {
      const answer = await fetch("main", { headers: tag ? { "If-None-Match": tag } : {} });
      if (answer.status === 200) {
        tag = answer.headers.get("ETag");
        const open = [...main.querySelectorAll("details[open]")].map((one) => one.id);
        const text = await answer.text(), x = scrollX, y = scrollY;
        main.innerHTML = text;
        for (const id of open) document.getElementById(id)?.setAttribute("open", "");
        scrollTo(x, y);
      }
      ended = answer.headers.get("X-Run") === "ended";
      misses = 0;
    } catch {
      misses += 1; // a run that is started again answers on the same port
      ended = misses === 40;
    }
    main.toggleAttribute("data-lost", misses > 0);
    if (!ended) setTimeout(refresh, 3000);
  };
  setTimeout(refresh, 1500);
})();
