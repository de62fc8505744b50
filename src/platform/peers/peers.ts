/** Messages between the processes of a service, kept for seconds. One that is lost does no harm: senders repeat what matters. */

/** `from` names its sender for as long as that lives. */
export interface PeerMessage {
  readonly from: string;
  readonly text: string;
}

export interface Peers {
  /**
   * Sends a message, where there is one, and resolves with those that others have sent since the last call, each sender's in their
   * order. One call at a time. Rejects with a StoreError: neither may have happened.
   */
  exchange(text: string | undefined): Promise<readonly PeerMessage[]>;
}

/** A longer message is none of ours. */
export const messageCharactersMax = 1_000_000;
/** How long a message waits for who was away. */
export const messagesKeptMs = 5_000;
/** To one reader, by the number of processes; of more, the latest. */
const messagesWaitingMax = 16;

/** Where the processes of one machine leave their messages for each other. */
export class PeerBoard {
  readonly #waiting = new Map<string, PeerMessage[]>();

  /** As `Peers.exchange`, of the process with this name, which is one of the readers from now on. */
  exchange(name: string, text: string | undefined): readonly PeerMessage[] {
    const received = this.#waiting.get(name) ?? [];
    if (text !== undefined) {
      const message = { from: name, text };
      for (const [reader, waiting] of this.#waiting) {
        if (reader === name) continue;
        if (waiting.length >= messagesWaitingMax * this.#waiting.size) waiting.shift();
        waiting.push(message);
      }
    }
    this.#waiting.set(name, []);
    return received;
  }

  /** It has ended. */
  drop(name: string): void {
    this.#waiting.delete(name);
  }
}
