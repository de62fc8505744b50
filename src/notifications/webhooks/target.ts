import { ApiError } from '../../platform/errors.ts';
import { checkUrl } from '../../platform/outbound/check-url.ts';
import type { FetchTarget } from '../../platform/outbound/check-url.ts';

export interface WebhookRules {
  /** Hosts that may have any IP address and be reached without TLS, in the format of `URL.host`. */
  readonly allowedHosts: ReadonlySet<string>;
  /** This service's own host names. */
  readonly ownHosts: ReadonlySet<string>;
}

export const urlCharactersMax = 2_000;
const webhook = { noun: 'webhook', otherwise: '' } as const;

/**
 * Where deliveries may go: anywhere images may be fetched from (reliability §3.2), and to `http://` URLs of hosts that the operator has
 * listed. Checked when an endpoint is created, and again before each try. Throws `unsupported_value` with `param: at`.
 */
export function webhookTarget(text: string, rules: WebhookRules, at: string): FetchTarget {
  if (text.length > urlCharactersMax)
    throw new ApiError('unsupported_value', `The webhook URL is longer than ${urlCharactersMax} characters.`, {
      param: at,
    });
  const isPlain = /^http:\/\//i.test(text);
  // The same rules apply to everything after the scheme; the host must be a listed one.
  const target = checkUrl(isPlain ? `https${text.slice(4)}` : text, { ...rules, fetches: true }, at, webhook);
  if (!isPlain) return target;
  if (!target.isAllowed)
    throw new ApiError('unsupported_value', 'The webhook URL must begin with https://.', { param: at });
  return { ...target, url: new URL(text) };
}
