// Times in the zone of the reader. The server writes <time datetime="…">, in UTC; the title has the whole time.
// data-show: "ago" (default), "time", "day", "clock".

const full = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long" });
const near = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const short = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" });
const long = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
const day = new Intl.DateTimeFormat(undefined, { weekday: "short", month: "short", day: "numeric" });
const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto", style: "short" });
const UNITS = [["second", 60], ["minute", 60], ["hour", 24], ["day", 7]];

/** Write all times below an element. */
export function showTimes(root) {
  for (const one of root.querySelectorAll("time[datetime]")) {
    const at = new Date(one.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    const text = formatTime(at, one.dataset.show);
    if (one.textContent !== text) one.textContent = text;
    const title = full.format(at);
    if (one.title !== title) one.title = title;
  }
}

/** One time as text. */
export function formatTime(at, show = "ago") {
  if (show === "clock") return near.format(at);
  if (show === "day") return day.format(at);
  // Seconds say something about what has happened, not about what is planned.
  if (show === "time") return isToday(at) && at <= new Date() ? near.format(at) : at.getFullYear() === new Date().getFullYear() ? short.format(at) : long.format(at);
  let amount = (at.getTime() - Date.now()) / 1000;
  if (Math.abs(amount) < 10) return "now";
  for (const [unit, size] of UNITS) {
    if (Math.abs(amount) < size) return relative.format(Math.round(amount), unit);
    amount /= size;
  }
  return at.getFullYear() === new Date().getFullYear() ? short.format(at) : long.format(at);
}

function isToday(at) {
  return at.toDateString() === new Date().toDateString();
}
