// Asks again and again, not while nobody sees the page, and less often while there is no answer.

const PATIENCE_MS = 15_000;
const LONGEST_PAUSE_MS = 30_000;

export function poll(url, everyMs, { onData, onTrouble }) {
  let timer = null;
  let failures = 0;
  let isAsking = false;
  let isStopped = false;

  async function ask() {
    if (isAsking || isStopped) return;
    isAsking = true;
    let pauseMs = everyMs;
    try {
      const view = await answer(url);
      failures = 0;
      if (!isStopped) onData(view);
    } catch (error) {
      failures += 1;
      pauseMs = Math.min(LONGEST_PAUSE_MS, everyMs * 2 ** Math.min(failures - 1, 8));
      if (!isStopped) onTrouble(error.message, pauseMs);
    } finally {
      isAsking = false;
    }
    schedule(pauseMs);
  }

  function schedule(pauseMs) {
    clearTimeout(timer);
    if (!isStopped && !document.hidden) timer = setTimeout(ask, pauseMs);
  }

  function onReturn() {
    if (document.hidden) clearTimeout(timer);
    else ask();
  }

  document.addEventListener("visibilitychange", onReturn);
  window.addEventListener("online", onReturn);
  ask();
  return {
    stop() {
      isStopped = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", onReturn);
      window.removeEventListener("online", onReturn);
    },
  };
}

async function answer(url) {
  let response;
  try {
    response = await fetch(url, { cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
  } catch {
    throw new Error("the extender does not answer");
  }
  if (response.ok) {
    try {
      return await response.json();
    } catch {
      throw new Error("the extender’s answer broke off");
    }
  }
  let text = `the extender answers ${response.status}`;
  try {
    const { error } = await response.json();
    if (error) text = error;
  } catch {
    // Somebody between us and the extender answered.
  }
  throw new Error(text);
}
