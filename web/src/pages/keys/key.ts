import type { Got } from '../../api/use-api.ts';

export type Key = Got<'/v1/keys/{id}'>;
