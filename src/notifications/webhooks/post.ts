import { combineSignals } from '../../platform/combine-signals.ts';
import { ApiError } from '../../platform/errors.ts';
import { beginningOf } from '../../platform/outbound/beginning-of.ts';
import { clientTo, judgedAddresses } from '../../platform/outbound/dial.ts';
import type { DialOptions } from '../../platform/outbound/dial.ts';
import type { NameResolver } from '../../platform/outbound/resolver.ts';
import { webhookTarget } from './target.ts';
import type { WebhookRules } from './target.ts';

export interface Posted {
  /** null: there was no response. */
  readonly status: number | null;
  /** The beginning of the response, as text. */
  readonly answer: string | null;
  /** null: it was accepted. Worded by this service, revealing nothing about its network. */
  readonly failure: string | null;
}

/** From the DNS lookup to the end of the response. */
export const tryTimeoutMs = 10_000;
export const answerBytesMax = 1_024;

/**
 * Posts JSON to a URL that a customer has entered, with the same checks as for images: no private network, no redirect, TLS verified, no
 * data of this service other than the payload. Never rejects because of the other side.
 */
export async function post(
  url: string,
  body: string,
  headers: Readonly<Record<string, string>>,
  services: { readonly rules: WebhookRules; readonly resolver: NameResolver; readonly dial: DialOptions },
  stop: AbortSignal,
): Promise<Posted> {
  const signal = combineSignals([stop, AbortSignal.timeout(tryTimeoutMs)]);
  const failed = (failure: string): Posted => ({ status: null, answer: null, failure });
  try {
    const target = webhookTarget(url, services.rules, 'url');
    const addresses = await judgedAddresses(target, services.resolver, { at: 'url', noun: 'webhook' }, signal);
    if (addresses.length === 0) return failed('the host name of the URL cannot be resolved');
    const client = clientTo(target, addresses, services.dial, signal);
    try {
      const response = await client.request({
        method: 'POST',
        path: target.url.pathname + target.url.search,
        headers: {
          'content-type': 'application/json',
          'user-agent': 'Tokenhouse-Webhooks',
          'accept-encoding': 'identity',
          connection: 'close',
          ...headers,
        },
        body,
        signal,
      });
      const { statusCode: status } = response;
      const answer = await textOf(response.body as AsyncIterable<Buffer>).catch(() => '');
      if (status >= 200 && status < 300) return { status, answer, failure: null };
      const what = status >= 300 && status < 400 ? 'a redirect, which is not followed' : 'which is not a success';
      return { status, answer, failure: `the endpoint answered ${status}, ${what}` };
    } finally {
      await client.destroy();
    }
  } catch (error) {
    if (stop.aborted) throw stop.reason;
    if (signal.aborted) return failed(`no answer within ${tryTimeoutMs / 1_000} seconds`);
    if (error instanceof ApiError) return failed(error.message);
    return failed('the connection failed');
  }
}

/** PostgreSQL accepts no NUL in a text; invalid UTF-8 is replaced. */
async function textOf(body: AsyncIterable<Buffer>): Promise<string> {
  const beginning = await beginningOf(body, answerBytesMax);
  return beginning.subarray(0, answerBytesMax).toString('utf8').replaceAll('\0', '\ufffd');
}
