// Whoever watches over calls fails none of them, whatever the groups are like.

import assert from "node:assert/strict";
import { test } from "node:test";

import { HANDLE } from "../js/runtime/handles.js";
import { groupOf, noteGroup } from "../js/watch/groups.js";
import { Joining } from "../js/watch/late.js";
import { MeetingOfCall } from "../js/watch/meetings.js";

test("a call that makes a group out of one without a store is not watched", async (context) => {
  const warned = context.mock.method(console, "warn", () => {});
  // Whatever it is asked fails: its handle is none of the native half's.
  const broken = { [HANDLE]: { id: 1 } };
  noteGroup(broken);
  const call = new Joining(new MeetingOfCall(groupOf(1), "tp"), 0);
  await call.look();
  assert.equal(await call.standing(), null);
  call.end(true);
  assert.equal(warned.mock.callCount(), 0);
});
