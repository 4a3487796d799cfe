// What a program can throw, and nobody can look at.

export const UNREADABLE = [
  {
    get name() {
      throw new Error("no name");
    },
    get message() {
      throw new Error("no message");
    },
  },
  new Proxy(new Error("hidden"), {
    get() {
      throw new Error("no property");
    },
    getPrototypeOf() {
      throw new Error("no prototype");
    },
  }),
];
