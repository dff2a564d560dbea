// Runs before the page is painted: light or dark, as the reader chose, or as the system says.
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const apply = () => {
    let chosen = null;
    try { chosen = localStorage.getItem("mulligan.theme"); } catch { /* storage is off */ }
    document.documentElement.dataset.theme = chosen ?? (dark.matches ? "dark" : "light");
  };
  apply();
  dark.addEventListener("change", apply);
  addEventListener("storage", apply);
})();
