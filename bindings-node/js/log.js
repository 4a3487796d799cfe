// `polyrank/log`: what polyrank logs, for the program's own logger. Knows nothing of what that is.

import "./index.js";
import { checkedLogger, handTo } from "./runtime/loggers.js";
import { native } from "./runtime/native.js";

/** Hands what is logged to `logger`, from now on and in all threads of the process. */
export function setLogger(...given) {
  const { logger, level } = checkedLogger(given);
  native.readLog(logger === null ? null : (line) => write(logger, line), level);
}

/** Whether the logger has taken a line. */
function write(logger, { level, target, message, rank, group, operation }) {
  const facts = [target.replace(/^polyrank(::)?/u, "").replaceAll("::", ".")];
  if (rank !== undefined) facts.push(`rank ${rank}`);
  if (group !== undefined) facts.push(`group ${group}`);
  if (operation !== undefined) facts.push(operation);
  const method = typeof logger[level] === "function" ? level : "debug";
  // One text: what comes after it means something else in each logger.
  const text = `polyrank (${facts.join(", ")}): ${message}`;
  return handTo(logger, method, text, () => process.stderr.write(`polyrank: ${message}\n`));
}
