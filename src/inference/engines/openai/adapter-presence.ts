import type { FlavorName } from '../../../generation/flavor-names.ts';
import { adapterPage, type WantedAdapter } from './listed-adapters.ts';
import { askAdapter, type PagesBackend } from './server-pages.ts';

export interface AdapterPresenceOptions {
  /** Whether the server has the adapter; `unsaid`: it does not list any; `undefined`: it does not answer. Never rejects. */
  readonly ask: () => Promise<boolean | 'unsaid' | undefined>;
  /** Whether a server without it answers with its base model all the same, so that nothing is sent there before it was seen. */
  readonly isSilent: boolean;
  /** Called when it is found to be missing. */
  readonly missed: () => void;
  readonly lookEveryMs?: number;
  readonly againEveryMs?: number;
}

/**
 * Follows whether a server has the adapter that it is used for, so that nobody pays for an adapter and gets the base. Servers that refuse
 * an unknown adapter are asked once they have, because some load it when it is first asked for; the others before they get anything, and
 * then every minute.
 */
export class AdapterPresence {
  readonly #options: AdapterPresenceOptions;
  #state: 'unknown' | 'there' | 'missing';
  #isAsking = false;
  #isClosed = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: AdapterPresenceOptions) {
    this.#options = options;
    this.#state = options.isSilent ? 'unknown' : 'there';
    if (options.isSilent) void this.#look();
  }

  get state(): 'unknown' | 'there' | 'missing' {
    return this.#state;
  }

  /** The server has refused a request because of it, or has been away. */
  doubted(): void {
    if (this.#isAsking || this.#isClosed || this.#state === 'missing') return;
    clearTimeout(this.#timer);
    void this.#look();
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
  }

  async #look(): Promise<void> {
    const { ask, isSilent, missed, lookEveryMs = 5_000, againEveryMs = 60_000 } = this.#options;
    this.#isAsking = true;
    const has = await ask();
    this.#isAsking = false;
    if (this.#isClosed) return;
    if (has === false && this.#state !== 'missing') missed();
    if (has !== undefined) this.#state = has === false ? 'missing' : 'there';
    const waitMs = this.#state !== 'there' ? lookEveryMs : isSilent ? againEveryMs : undefined;
    if (waitMs !== undefined) this.#timer = setTimeout(() => void this.#look(), waitMs).unref();
  }
}

/** That of an engine; `undefined`: it serves no adapter, or by a kind of server that does not list any. */
export function presenceOf(
  { flavor, adapter }: { readonly flavor: FlavorName; readonly adapter?: WantedAdapter },
  pages: PagesBackend,
  missed: () => void,
): AdapterPresence | undefined {
  if (adapter?.name === undefined || adapter.loadedBeside !== undefined || adapterPage[flavor] === undefined)
    return undefined;
  return new AdapterPresence({ ask: () => askAdapter(pages, flavor, adapter), isSilent: flavor !== 'vllm', missed });
}
