import type { Got } from '../../api/use-api.ts';

export type Receipt = Exclude<Got<'/v1/generation'>, { readonly object: 'list' }>;

interface Models {
  readonly asked: string;
  /** undefined: none could. */
  readonly served: string | undefined;
}

/** Where another model may have served than the one that was asked for (decision 040). */
export function modelsOf({ model, fallbacks }: Pick<Receipt, 'model' | 'fallbacks'>): Models {
  if (fallbacks === null || fallbacks.length === 0) return { asked: model, served: model };
  const hasServed = fallbacks.every((fallback) => fallback.model !== model);
  return { asked: fallbacks[0]!.model, served: hasServed ? model : undefined };
}
