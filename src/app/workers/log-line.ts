import type { LineSink } from '../../platform/log.ts';
import type { ParentConnection } from './messages.ts';

/** Sends a worker's log to its parent, which alone writes, so that lines of several processes are not torn. */
export class LogLine implements LineSink {
  readonly #parent: ParentConnection;
  #waiting: (() => void) | undefined;

  constructor(parent: ParentConnection) {
    this.#parent = parent;
  }

  /** Signals backpressure until the lines are sent, so that the producer bounds what waits. */
  write(lines: string): boolean {
    this.#parent.note('log', lines);
    void this.#parent.flush().then(() => {
      const waiting = this.#waiting;
      this.#waiting = undefined;
      waiting?.();
    });
    return false;
  }

  once(_event: 'drain', listener: () => void): void {
    this.#waiting = listener;
  }
}
