// The Chromium of this machine.

import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";

const NAMES = ["chromium", "chromium-browser", "google-chrome", "chrome"];

/** Its path: what the variable CHROMIUM names, or the first that is installed. */
export function findChromium(): string {
  const folders = ["/usr/bin", ...(process.env["PATH"] ?? "").split(delimiter)].filter(Boolean);
  const all = NAMES.flatMap((name) => folders.map((folder) => join(folder, name)));
  const found = process.env["CHROMIUM"] ?? all.find(isProgram);
  if (!found) {
    throw new Error("there is no Chromium here: install one, or name it in CHROMIUM");
  }
  return found;
}

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
