"""One file per `shoal` command. Only click is imported at the top: a command imports what it needs when it runs."""
