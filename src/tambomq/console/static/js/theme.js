// Sets the chosen theme before the first paint. A classic script: modules run too late for that.
(() => {
  let theme = null;
  try {
    theme = localStorage.getItem("tambo.theme");
  } catch {
    // No storage: the system's preference holds.
  }
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
})();
