// A page that is timed. Playwright has the browser tell it of every WebSocket message of its pages,
// with its bytes in base64: for 1 MiB that takes three times as long as the exchange itself, on the
// page's own thread and in this process. So these pages are none of Playwright's. Knows nothing of
// what runs in them.

/** Opens `url` in a new page; gives a way to run functions there, and waits until it is loaded. */
export async function openPage(browser, url) {
  const devtools = await browser.newBrowserCDPSession();
  // Playwright looks after the pages of its own contexts alone.
  const { browserContextId } = await devtools.send("Target.createBrowserContext");
  const where = { url: "about:blank", browserContextId };
  const { targetId } = await devtools.send("Target.createTarget", where);
  const page = await attach(devtools, targetId);
  const evaluate = (act, told) => run(page, act, told);
  await page("Page.navigate", { url });
  const loaded = `${new URL(url).origin} complete`;
  while ((await evaluate(() => `${location.origin} ${document.readyState}`)) !== loaded);
  return { evaluate };
}

/** Commands for the page, one way there and one back. */
async function attach(devtools, targetId) {
  const { sessionId } = await devtools.send("Target.attachToTarget", { targetId, flatten: false });
  const waiting = new Map();
  devtools.on("Target.receivedMessageFromTarget", (received) => {
    if (received.sessionId !== sessionId) return;
    const { id, result, error } = JSON.parse(received.message);
    const { resolve, reject } = waiting.get(id) ?? {};
    waiting.delete(id);
    if (error === undefined) resolve?.(result);
    else reject?.(new Error(error.message));
  });
  let last = 0;
  return (method, params) => {
    last += 1;
    const message = JSON.stringify({ id: last, method, params });
    const answered = new Promise((resolve, reject) => waiting.set(last, { resolve, reject }));
    const sent = devtools.send("Target.sendMessageToTarget", { sessionId, message });
    return Promise.all([answered, sent]).then(([answer]) => answer);
  };
}

/** What the function `act` of the page makes of `told`. */
async function run(page, act, told) {
  const expression = `(${act})(${JSON.stringify(told)})`;
  const how = { expression, awaitPromise: true, returnByValue: true };
  const { result, exceptionDetails: failure } = await page("Runtime.evaluate", how);
  if (failure) throw new Error(failure.exception?.description ?? failure.text);
  return result.value;
}
