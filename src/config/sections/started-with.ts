/** What a server can do because of how it was started, which it does not say. */
import type { Path } from '../document.ts';
import { group, integer, required, textLike, type Reading } from '../setting.ts';

export const loadAdapters = group(
  'has a running vLLM load the adapters of the model when they are asked for; when left out, it has to have them loaded already',
  {
    folder: required(
      textLike(
        '^/[ -~]{0,1023}$',
        'the folder on the computer of the server that has the adapters, each in a folder with its name; nothing else is loaded',
        { example: '/adapters' },
      ),
    ),
    loaded_max: integer(
      1,
      1000,
      'how many of them the server has loaded at the same time; for one more, the one that was not used for longest is unloaded',
      { default: 16, example: 32 },
    ),
  },
);

export function loadedAt<Loading>(
  { loadAdapters, flavor }: { readonly loadAdapters: Loading; readonly flavor: string },
  at: Path,
  { report }: Reading,
): Loading {
  if (loadAdapters !== undefined && flavor !== 'vllm')
    report(
      [...at, 'load_adapters'],
      'only vLLM is told to load adapters; remove this, and start the server with the adapters',
    );
  return loadAdapters;
}

export function priorityAt(
  { priorityScheduling, flavor }: { readonly priorityScheduling: boolean; readonly flavor: string },
  at: Path,
  { report }: Reading,
): boolean {
  if (priorityScheduling && flavor !== 'vllm' && flavor !== 'sglang')
    report([...at, 'priority_scheduling'], 'only vLLM and SGLang order their queue by priority; remove this');
  return priorityScheduling;
}
