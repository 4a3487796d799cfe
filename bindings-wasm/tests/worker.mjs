// A Worker that runs the cases it is told: `{ file, suite, name }` -> null, or what went wrong.

onmessage = async ({ data: { file, suite, name } }) => {
  try {
    const [pr, cases] = await Promise.all([import("../js/index.js"), import(file)]);
    await cases[suite][name](pr);
    postMessage(null);
  } catch (error) {
    postMessage(String(error.stack ?? error));
  }
};
