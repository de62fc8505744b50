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
