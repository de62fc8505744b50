import type { LineSink } from '../../platform/log.ts';
import type { Link } from './link.ts';

/** Sends a worker's log to its parent, the one that writes, so that lines of several processes are not torn. */
export class LogLine implements LineSink {
  readonly #link: Link;
  #waiting: (() => void) | undefined;

  constructor(link: Link) {
    this.#link = link;
  }

  /** Signals backpressure until the lines are sent, so that what waits is bounded where lines are made. */
  write(lines: string): boolean {
    this.#link.note('log', lines);
    void this.#link.flush().then(() => {
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
