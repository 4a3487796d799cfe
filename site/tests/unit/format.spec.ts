// Numbers in words, places on axes, and the address of a room.

import { expect, test } from "@playwright/test";
import { linear, logarithmic } from "../../src/charts/scale";
import { formatBandwidth, formatBytes, formatNumber, formatSeconds } from "../../src/format";
import { defaultStore, readAddress, writeAddress } from "../../src/rooms/address";

test("bytes, seconds, bandwidths and numbers", () => {
  expect([4, 1024, 1536, 65_536, 1 << 20, 2 ** 30].map(formatBytes)).toEqual([
    "4 B",
    "1 KiB",
    "1.5 KiB",
    "64 KiB",
    "1 MiB",
    "1 GiB",
  ]);
  expect([0, 8.5e-7, 1.2e-5, 0.0034, 2].map(formatSeconds)).toEqual([
    "0 s",
    "850 ns",
    "12 µs",
    "3.4 ms",
    "2 s",
  ]);
  expect(formatBandwidth(1.25e9)).toBe("1.25 GB/s");
  expect([0, 7.1, 30.000001, 1234.5, 1e8].map(formatNumber)).toEqual([
    "0",
    "7.1",
    "30",
    "1235",
    "1.0e+8",
  ]);
});

test("scales go there and back", () => {
  const scale = logarithmic(4, 2 ** 30, 50, 650, 2);
  for (const value of [4, 100, 2 ** 20, 2 ** 30]) {
    expect(scale.value(scale.at(value))).toBeCloseTo(value, 3);
  }
  expect(scale.marks(28)).toHaveLength(29);
  expect(linear(0, 10, 0, 100).marks(5)).toEqual([0, 2, 4, 6, 8, 10]);
  expect(linear(0, 1, 100, 0).at(0.25)).toBe(75);
});

test("a room's address is read as it was written", () => {
  const page = new URL("http://127.0.0.1:4173/demos/allreduce?x=1#y");
  const ticket = { url: "ws://127.0.0.1:29510/", room: "abc234", size: 4 };
  const link = writeAddress(page, ticket);
  expect(link).toBe("http://127.0.0.1:4173/demos/allreduce?room=abc234&size=4");
  expect(readAddress(new URL(link))).toEqual(ticket);
  const other = { ...ticket, url: "wss://lab.example/store" };
  expect(readAddress(new URL(writeAddress(page, other)))).toEqual(other);
  expect(readAddress(new URL("http://x/?size=99")).size).toBe(8);
  expect(defaultStore("localhost")).toBe("ws://127.0.0.1:29510/");
});
