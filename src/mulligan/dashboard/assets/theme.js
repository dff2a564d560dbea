// Runs before the page is painted: light or dark, as the reader chose, or as the system says.
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const apply = () => {
    let chosen = null;
    try { chosen = localStorage.getItem("mulligan.theme"); } catch { /* storage is off */ }
    document.documentElement.dataset.theme = chosen ?? (dark.matches ? "dark" : "light");
  };
  apply();
  // The server draws days by the calendar of the reader.
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (zone) document.cookie = `mulligan_zone=${encodeURIComponent(zone)}; path=/; max-age=31536000; SameSite=Strict`;
  dark.addEventListener("change", apply);
  addEventListener("storage", apply);
})();
