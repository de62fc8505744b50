import { ApiError } from '../../platform/errors.ts';
import { checkUrl } from '../../platform/outbound/check-url.ts';
import type { FetchTarget } from '../../platform/outbound/check-url.ts';

export interface WebhookRules {
  /** Hosts that may have any address, and be reached without TLS, written like `URL.host`. */
  readonly allowedHosts: ReadonlySet<string>;
  /** Names of this service itself. */
  readonly ownHosts: ReadonlySet<string>;
}

export const urlCharactersMax = 2_000;
const webhook = { noun: 'webhook', otherwise: '' } as const;

/**
 * Where deliveries may go: wherever images may be fetched from (reliability §3.2), and to `http://` of hosts that the operator
 * has named. Checked when an endpoint is made, and again before each try. Throws `unsupported_value` with `param: at`.
 */
export function webhookTarget(text: string, rules: WebhookRules, at: string): FetchTarget {
  if (text.length > urlCharactersMax)
    throw new ApiError('unsupported_value', `The webhook URL is longer than ${urlCharactersMax} characters.`, {
      param: at,
    });
  const isPlain = /^http:\/\//i.test(text);
  // The same rules for everything after the scheme; its host must be a named one.
  const target = checkUrl(isPlain ? `https${text.slice(4)}` : text, { ...rules, fetches: true }, at, webhook);
  if (!isPlain) return target;
  if (!target.isAllowed)
    throw new ApiError('unsupported_value', 'The webhook URL must begin with https://.', { param: at });
  return { ...target, url: new URL(text) };
}
