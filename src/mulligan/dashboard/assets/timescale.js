// Time as positions from 0 to 1, in which long idle stretches are folded; and durations in words.

const FOLD_SHARE = 0.05;
const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 9e5, 18e5, 36e5, 72e5, 144e5, 216e5, 432e5, 864e5];
const MARK_PIXELS = 90;

/** Milliseconds as people say them: 85ms, 3.2s, 4m10s, 2h05m, 3d4h. */
export function duration(ms) {
  if (ms < 100) return `${Math.round(ms)}ms`;
  if (ms < 10_000) return `${+(ms / 1000).toFixed(2)}s`;
  const seconds = Math.round(ms / 1000);
  if (seconds < 60) return `${seconds}s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return seconds % 60 ? `${minutes}m${String(seconds % 60).padStart(2, "0")}s` : `${minutes}m`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return minutes % 60 ? `${hours}h${String(minutes % 60).padStart(2, "0")}m` : `${hours}h`;
  return hours % 24 ? `${Math.floor(hours / 24)}d${hours % 24}h` : `${Math.floor(hours / 24)}d`;
}

export class Timescale {
  /** `length`: of the run; `folds`: pairs of begin and end, both in milliseconds since its start. */
  constructor(length, folds) {
    this.length = Math.max(1, length);
    this.folds = folds;
    const folded = folds.reduce((sum, [since, until]) => sum + until - since, 0);
    this.shown = Math.max(1, this.length - folded);
    this.open = 1 - FOLD_SHARE * folds.length;
    this.key = `${length}/${folds}/`;
    this.low = 0;
    this.high = 1;
    this.begin = 0;
    this.end = this.length;
  }

  /** The same for a part of the time only. */
  zoomed(begin, end) {
    const part = new Timescale(this.length, this.folds);
    part.low = this.position(begin);
    part.high = Math.max(this.position(end), part.low + 1e-9);
    part.begin = begin;
    part.end = end;
    part.key = `${this.key}${begin}/${end}`;
    return part;
  }

  /** Where a moment is drawn, from 0 to 1. */
  share(at) {
    return Math.min(1, Math.max(0, (this.position(at) - this.low) / (this.high - this.low)));
  }

  position(at) {
    const moment = Math.min(Math.max(at, 0), this.length);
    let left = moment;
    let folds = 0;
    for (const [since, until] of this.folds) {
      if (moment <= since) break;
      const inside = Math.min(moment, until) - since;
      left -= inside;
      folds += inside / (until - since);
    }
    return (left / this.shown) * this.open + folds * FOLD_SHARE;
  }

  /** Round times as far as there is room for their labels, and the folds. */
  marks(width) {
    const inside = this.folds.filter(([since, until]) => since < this.end && until > this.begin);
    const folds = inside.map(([since, until]) => ({ share: this.share((since + until) / 2), label: `${duration(until - since)} idle`, isFold: true }));
    const shown = (this.high - this.low) * (this.shown / this.open);
    const count = Math.max(1, Math.floor(width / MARK_PIXELS));
    const step = STEPS.find((one) => shown / one <= count) ?? 864e5 * Math.ceil(shown / 864e5 / count);
    const marks = [];
    for (let at = Math.ceil(this.begin / step) * step; at <= this.end && marks.length <= count * 2; at += step) {
      const fold = this.folds.find(([since, until]) => at > since && at < until);
      if (fold) {
        at = Math.ceil(fold[1] / step) * step - step;
        continue;
      }
      const share = this.share(at);
      if (share * width < width - 30 && folds.every((one) => Math.abs(one.share - share) * width > MARK_PIXELS)) marks.push({ share, label: at ? duration(at) : "0", isFold: false });
    }
    return [...marks, ...folds];
  }
}
