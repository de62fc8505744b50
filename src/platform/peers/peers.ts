/** Messages between the processes of a service, kept for seconds. A lost one does no harm: senders repeat what matters. */

/** `from` identifies its sender for the sender's lifetime. */
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

/** Longer messages are not ours. */
export const messageCharactersMax = 1_000_000;
/** How long a message is kept for a process that was away. */
export const messagesKeptMs = 5_000;
