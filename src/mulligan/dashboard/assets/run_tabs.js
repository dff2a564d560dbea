// The tabs of the run page besides the overview: names of steps as suggestions, and the actions.
import { get } from "./api.js";
import { refresh } from "./dashboard.js";
import "./run_actions.js";

// Names are fetched when somebody types: a run may have a hundred thousand steps.
const SUGGESTED_MAX = 50;
let asked = 0;

document.addEventListener("input", async (event) => {
  const box = event.target.closest("[data-step-names]");
  if (!box) return;
  const mine = ++asked;
  try {
    const page = await get(`runs/${box.dataset.stepNames}/steps?limit=${SUGGESTED_MAX}&text=${encodeURIComponent(box.value)}`);
    if (mine !== asked) return;
    const list = document.getElementById(box.getAttribute("list"));
    list?.replaceChildren(...page.steps.map((one) => Object.assign(document.createElement("option"), { value: one.name })));
  } catch {
    // The name can be typed without suggestions.
  }
});

// A part of the page that the server has not read whole yet is asked for again.
const main = document.getElementById("main");
const goOn = () => main.querySelector("[data-again]") && refresh();
main.addEventListener("refreshed", goOn);
goOn();
