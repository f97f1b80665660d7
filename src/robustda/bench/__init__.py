"""The paper's tables and figures as commands: what to run (experiments), how (grid), what came out (results)."""
