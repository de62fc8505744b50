import type { FlavorName } from '../../../generation/flavor-names.ts';
import { entriesOf, isObject, isPrintable } from './listing.ts';

/** A fine-tuned adapter that a server has loaded. */
export interface ListedAdapter {
  readonly name: string;
  /** The model that it belongs to, where the server says so. */
  readonly parent: string | undefined;
  /** Where the server has read it from, where it says so. */
  readonly root: string | undefined;
  /** Its place among the `--lora` files of llama-server. */
  readonly loraId: number | undefined;
}

const adaptersMax = 1_000;

/** The adapters in a list of models: vLLM and SGLang name the model that each belongs to. */
export const adaptersAmong = (listing: unknown): readonly ListedAdapter[] =>
  entriesOf(listing)
    .flatMap(({ id, parent, root }) =>
      isPrintable(id) && isPrintable(parent)
        ? [{ name: id, parent, root: isPrintable(root) ? root : undefined, loraId: undefined }]
        : [],
    )
    .slice(0, adaptersMax);

/** The `--lora` files that llama-server lists, named by their files; `undefined` if it is no such list. */
export function loraFiles(body: unknown): readonly ListedAdapter[] | undefined {
  if (!Array.isArray(body)) return undefined;
  return body
    .slice(0, adaptersMax)
    .filter(isObject)
    .flatMap(({ id, path }) => {
      const name = typeof path === 'string' ? path.replace(/^.*[/\\]/, '').replace(/\.gguf$/i, '') : undefined;
      return Number.isSafeInteger(id) && isPrintable(name)
        ? [{ name, parent: undefined, root: undefined, loraId: id as number }]
        : [];
    });
}

/** An adapter as requests name it, and what is sent for it. */
export interface WantedAdapter {
  /** `undefined`: none, although the server has some. */
  readonly name: string | undefined;
  readonly fields: Readonly<Record<string, unknown>>;
  /** The name of the model that it belongs to, where the server is told to load the adapter. */
  readonly loadedBeside?: string | undefined;
}

/** Where a server of this kind lists its adapters: among its models, or on a page of its own. */
export const adapterPage: Partial<Record<FlavorName, '/lora-adapters' | '/models'>> = {
  'llama-server': '/lora-adapters',
  sglang: '/models',
  vllm: '/models',
};

/**
 * Whether the server has the adapter, by the text of that page; `undefined`: it does not say. Older versions of SGLang do not list
 * adapters.
 */
export function hasAdapter(flavor: FlavorName, { name, fields }: WantedAdapter, page: unknown): boolean | undefined {
  if (flavor === 'llama-server') {
    const files = loraFiles(page);
    const used = fields['lora'] as readonly { readonly id: number; readonly scale: number }[];
    return files && used.every(({ id, scale }) => scale === 0 || files.some(({ loraId }) => loraId === id));
  }
  const listed = adaptersAmong(page);
  if (listed.length === 0 && flavor === 'sglang') return undefined;
  const entries = entriesOf(page);
  return entries.length === 0 ? undefined : entries.some(({ id }) => id === name);
}
