import type { Got } from '../../api/use-api.ts';

export type Receipt = Exclude<Got<'/v1/generation'>, { readonly object: 'list' }>;
