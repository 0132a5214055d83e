// Numbers as people read them.

const GIB = 2 ** 30;

export function bytes(count) {
  if (count === null || count === undefined) return "?";
  if (count > 0 && count < GIB) return `${Math.round(count / 2 ** 20)} MiB`;
  return `${trimmed(count / GIB, count >= 100 * GIB ? 0 : 1)} GiB`;
}

export function percent(value) {
  if (value === null || value === undefined) return "?";
  return `${trimmed(value, value < 10 ? 1 : 0)} %`;
}

// Of everything there is, as a percentage.
export function partOf(value, all) {
  return value === null || !all ? value : (100 * value) / all;
}

export function plural(count, word, words = `${word}s`) {
  return `${count} ${count === 1 ? word : words}`;
}

export function age(seconds) {
  if (seconds < 90) return `${Math.max(0, Math.round(seconds))} s`;
  if (seconds < 90 * 60) return `${Math.round(seconds / 60)} min`;
  if (seconds < 36 * 3600) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

export function clock(unixSeconds) {
  return new Date(unixSeconds * 1000).toLocaleTimeString();
}

function trimmed(value, digits) {
  return Number(value.toFixed(digits)).toString();
}
