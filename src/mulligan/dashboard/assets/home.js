// The page that opens first: failures that somebody has seen are folded away, in this browser alone.
import { refresh } from "./dashboard.js";

const KEPT_SECONDS = 14 * 86_400;

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-seen]");
  if (!button) return;
  const { cookie, seen } = button.dataset;
  document.cookie = `${cookie}=${seen}; path=/; max-age=${KEPT_SECONDS}; SameSite=Strict`;
  await refresh();
  // The button is gone.
  document.getElementById("main").focus();
});
