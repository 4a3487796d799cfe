// `polyrank-web/workers`: a store through which Workers of one page meet without a server, and by
// which they are connected. Knows nothing of what goes over their connections.

import { Store } from "./index.js";
import { HANDLE } from "./runtime/handles.js";
import { InvalidArgumentError, InvalidTypeError } from "./generated/errors.js";
import { addMember, carrier } from "./ports/pipes.js";
import { StoreClient, welcomed } from "./ports/client.js";
import { StoreHost } from "./ports/host.js";
import { STORE_METHODS } from "./runtime/foreign_stores.js";
import { DURATION, optionsOf } from "./runtime/options.js";
import { native } from "./load.js";

/** The argument by which only this file makes a store of a client. */
const CONNECTED = Symbol("polyrank.connected");

/** As that of the other stores, ms. */
const DEFAULT_TIMEOUT_MS = 300_000;

/** Ports by which somebody has connected. */
const taken = new WeakSet();

let members = 0;

export class MessagePortStore extends Store {
  #side;

  constructor(made, side) {
    super();
    this.#side = made === CONNECTED ? side : new StoreHost();
    members += 1;
    addMember(members, (peer) => this.#side.linkTo(peer));
    native.carryPipes(this[HANDLE].handle, members, this.#side.number, carrier);
  }

  static async connect(port, options) {
    if (!(port instanceof MessagePort)) {
      const expected = "expected a MessagePort that openPort() of a MessagePortStore gave";
      throw new InvalidTypeError(`MessagePortStore.connect(): ${expected}`);
    }
    if (taken.has(port)) {
      throw new InvalidArgumentError(
        "MessagePortStore.connect(): this port is connected already: each rank needs one of its " +
          "own; call openPort() for every rank",
      );
    }
    const given = optionsOf("MessagePortStore.connect", options, { timeout: DURATION });
    const timeout = given.timeout ?? DEFAULT_TIMEOUT_MS;
    taken.add(port);
    const client = new StoreClient(port, await welcomed(port, timeout));
    const store = new MessagePortStore(CONNECTED, client);
    store.setTimeout(timeout);
    return store;
  }

  openPort() {
    if (this.#side instanceof StoreHost) return this.#side.openPort();
    throw new InvalidArgumentError(
      "openPort(): only the MessagePortStore that was made by `new` opens ports, not one that is " +
        "connected to it",
    );
  }

  static {
    for (const method of STORE_METHODS) {
      this.prototype[method] = function (...given) {
        return this.#side.ask(method, given, this.timeout);
      };
    }
  }
}
