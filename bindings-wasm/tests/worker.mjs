// A Worker that runs the cases it is told: `{ file, suite, name }` -> null, or what went wrong.

onmessage = async ({ data: { file, suite, name } }) => {
  try {
    const native = "../js/runtime/native.js";
    const files = ["../js/index.js", native, file];
    const [pr, half, cases] = await Promise.all(files.map((name) => import(name)));
    await cases[suite][name](pr, half.native);
    postMessage(null);
  } catch (error) {
    postMessage(String(error.stack ?? error));
  }
};
