// A Worker that runs the conformance cases of its world as a rank: tells `{ code, said }`.

onmessage = async ({ data: { port, rank, size } }) => {
  const said = [];
  try {
    const pr = await import("polyrank-web");
    const { MessagePortStore } = await import("polyrank-web/workers");
    const { main } = await import("/tests/cases/run.mjs");
    const store = await MessagePortStore.connect(port);
    const load = (path) => fetch(`/${path}`).then((response) => response.text());
    const say = (line) => said.push(line);
    const init = { store, rank, worldSize: size };
    const code = await main(pr, { init, language: "worker", load, say, device: undefined });
    postMessage({ code, said });
  } catch (error) {
    postMessage({ code: -1, said: [...said, String(error.stack ?? error)] });
  }
};
