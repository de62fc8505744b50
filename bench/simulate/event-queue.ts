interface Event {
  readonly atMs: number;
  readonly order: number;
  readonly run: () => void;
}

/** What happens on a clock of its own, in the order of time; of the same moment, in the order in which it was added. */
export class EventQueue {
  /** A binary heap. */
  readonly #heap: Event[] = [];
  #added = 0;

  add(atMs: number, run: () => void): void {
    const heap = this.#heap;
    const event: Event = { atMs, order: this.#added++, run };
    let at = heap.length;
    heap.push(event);
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (!isBefore(event, heap[parent]!)) break;
      heap[at] = heap[parent]!;
      at = parent;
    }
    heap[at] = event;
  }

  /** Until nothing is left. */
  run(): void {
    for (let event = this.#take(); event !== undefined; event = this.#take()) event.run();
  }

  #take(): Event | undefined {
    const heap = this.#heap;
    const first = heap[0];
    const last = heap.pop();
    if (first === undefined || last === undefined || heap.length === 0) return first;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= heap.length) break;
      if (child + 1 < heap.length && isBefore(heap[child + 1]!, heap[child]!)) child++;
      if (!isBefore(heap[child]!, last)) break;
      heap[at] = heap[child]!;
      at = child;
    }
    heap[at] = last;
    return first;
  }
}

const isBefore = (a: Event, b: Event): boolean => a.atMs < b.atMs || (a.atMs === b.atMs && a.order < b.order);
