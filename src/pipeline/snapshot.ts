import type { Catalog } from '../catalog/catalog.ts';
import type { FetchSettings } from '../images/fetcher.ts';
import type { AddressRanges } from '../ip/ranges.ts';
import { placesOf } from './places.ts';
import type { Backend, Places } from './places.ts';

/** Sizes and times that bound one request. */
export interface RequestLimits {
  /** How long the head of a stream waits for the first token (contracts §1.0). */
  readonly primeMs: number;
  /** Silence after which a stream gets a comment. */
  readonly keepAliveMs: number;
  /** How long a client may stop reading before its stream is cut (reliability C3). */
  readonly readerStallMs: number;
  /** Bodies of so many bytes and more are refused (specification part 8). */
  readonly bodyBytesMax: number;
  /** Longest life of a request (contracts decision 23). */
  readonly requestDeadlineMs: number;
}

/** What one configuration says about requests. It never changes: a reload makes another one. */
export interface Snapshot {
  readonly catalog: Catalog;
  readonly limits: RequestLimits;
  readonly images: FetchSettings;
  /** Who may say where a request comes from; `undefined`: nobody. */
  readonly trustedProxies: AddressRanges | undefined;
  /** Pages of which origins may call from a browser, besides those of this computer; `*`: of all. */
  readonly allowedOrigins: ReadonlySet<string>;
  /** By the id of the model. */
  readonly places: ReadonlyMap<string, Places>;
}

/** A request's hold on the snapshot that it began with, so that it never sees half of two. */
export interface Lease {
  readonly snapshot: Snapshot;
  placesOf(modelId: string): Places;
  /** From here on only the backends of this model are used: the others need not wait for this request. */
  narrow(modelId: string): void;
  /** Called once, when the request has ended. */
  release(): void;
}

const none = placesOf([], 0);

/** One snapshot is current; earlier ones stay for as long as requests use them, and so do their backends. */
export class Snapshots {
  #current: Holding;
  readonly #unused: (backend: Backend) => void;
  /** Earlier snapshots that requests have as a whole. */
  readonly #retired = new Set<Holding>();
  /** Requests by the list of backends that they have narrowed their lease to. */
  readonly #narrowed = new Map<readonly Backend[], number>();
  /** Backends of no current model that some request may still use. */
  readonly #leaving = new Set<Backend>();

  /** `unused` is called once for each backend that the current snapshot does not have and no request can reach any more. */
  constructor(first: Snapshot, unused: (backend: Backend) => void) {
    this.#current = { snapshot: first, users: 0 };
    this.#unused = unused;
  }

  get current(): Snapshot {
    return this.#current.snapshot;
  }

  /** Backends that have left the configuration and still work for requests that began before. */
  get leaving(): number {
    return this.#leaving.size;
  }

  /** Every lease from now on has this snapshot. */
  swap(next: Snapshot): void {
    const before = this.#current;
    const kept = new Set(backendsOf(next));
    for (const backend of backendsOf(before.snapshot)) {
      if (!kept.has(backend)) this.#leaving.add(backend);
    }
    this.#current = { snapshot: next, users: 0 };
    if (before.users > 0) this.#retired.add(before);
    this.#sweep();
  }

  lease(): Lease {
    const holding = this.#current;
    holding.users++;
    let list: readonly Backend[] | undefined;
    const giveBack = (): void => {
      holding.users--;
      if (holding.users === 0) this.#retired.delete(holding);
    };
    return {
      snapshot: holding.snapshot,
      placesOf: (modelId) => holding.snapshot.places.get(modelId) ?? none,
      narrow: (modelId) => {
        if (list !== undefined) throw new Error('a lease is narrowed once');
        list = (holding.snapshot.places.get(modelId) ?? none).backends;
        this.#narrowed.set(list, (this.#narrowed.get(list) ?? 0) + 1);
        giveBack();
        this.#sweep();
      },
      release: () => {
        if (list === undefined) giveBack();
        else {
          const users = (this.#narrowed.get(list) ?? 0) - 1;
          if (users > 0) this.#narrowed.set(list, users);
          else this.#narrowed.delete(list);
        }
        this.#sweep();
      },
    };
  }

  #sweep(): void {
    if (this.#leaving.size === 0) return;
    const used = new Set<Backend>([...this.#narrowed.keys()].flat());
    for (const { snapshot } of this.#retired) for (const backend of backendsOf(snapshot)) used.add(backend);
    for (const backend of [...this.#leaving]) {
      if (used.has(backend)) continue;
      this.#leaving.delete(backend);
      this.#unused(backend);
    }
  }
}

const backendsOf = ({ places }: Snapshot): readonly Backend[] =>
  [...places.values()].flatMap(({ backends }) => backends);

interface Holding {
  readonly snapshot: Snapshot;
  users: number;
}
