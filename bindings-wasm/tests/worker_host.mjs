// A Worker that has the keys of a store, and is not a rank: gives as many ports as it is asked for.

onmessage = async ({ data: size }) => {
  const { MessagePortStore } = await import("polyrank-web/workers");
  const store = new MessagePortStore();
  const ports = Array.from({ length: size }, () => store.openPort());
  postMessage(ports, ports);
};
