/** The account API, typed by its own document (`schema.ts` is generated: `node scripts/console-types.mjs`). */
import createClient from 'openapi-fetch';

import type { paths } from './schema.ts';
import { accountId } from './account-choice.ts';
import { acrossSessionChanges } from './session-changes.ts';

/** A request that the API has refused, or that has not reached it (`status` 0). */
export class ApiFailure extends Error {
  readonly status: number;
  readonly code: string;
  /** The field at fault, as `param` names it. */
  readonly param: string | undefined;
  readonly requestId: string | undefined;
  readonly docsUrl: string | undefined;
  /** The person has to prove once more who they are. */
  readonly needsStepUp: boolean;
  /** The session views an account, read-only. */
  readonly isViewing: boolean;
  readonly retryAfterSeconds: number | undefined;

  constructor(status: number, error: Partial<ErrorShape> & { readonly message: string }, retryAfter?: string | null) {
    super(error.message);
    this.name = 'ApiFailure';
    this.status = status;
    this.code = error.code ?? 'unknown';
    this.param = error.param;
    this.requestId = error.request_id;
    this.docsUrl = error.docs_url;
    this.needsStepUp = error.step_up_required === true;
    this.isViewing = error.viewing_account !== undefined;
    const seconds = Number(retryAfter ?? Number.NaN);
    this.retryAfterSeconds = Number.isFinite(seconds) ? seconds : undefined;
  }

  /** The network, not the server, has failed. */
  get isOffline(): boolean {
    return this.status === 0;
  }
}

interface ErrorShape {
  readonly code: string;
  readonly message: string;
  readonly param: string;
  readonly request_id: string;
  readonly docs_url: string;
  readonly step_up_required: boolean;
  readonly viewing_account: string;
}

const send = acrossSessionChanges((request) => fetch(request));

/** Raw client: every answer as it is. Pages use `get`, `send` and the hooks of `use-api.ts`. */
export const client = createClient<paths>({
  baseUrl: location.origin,
  fetch: async (request) => {
    const account = accountId();
    if (account !== undefined && !request.headers.has('x-account-id')) request.headers.set('x-account-id', account);
    return await send(request);
  },
});

type Answer<Data> = { readonly data?: Data | undefined; readonly error?: unknown; readonly response: Response };

/** The content of an answer; throws `ApiFailure`. */
export async function content<Data>(asked: Promise<Answer<Data>>): Promise<Data> {
  let answer: Answer<Data>;
  try {
    answer = await asked;
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw error;
    throw new ApiFailure(0, { code: 'offline', message: 'The server does not answer.' });
  }
  if (answer.response.ok) return answer.data as Data;
  const { error } = (answer.error ?? {}) as { readonly error?: ErrorShape };
  throw new ApiFailure(
    answer.response.status,
    error ?? { message: `HTTP ${answer.response.status}` },
    answer.response.headers.get('retry-after'),
  );
}

/** For `Idempotency-Key`: a form that is sent twice takes effect once. Also where `crypto.randomUUID` is missing (plain HTTP). */
export const newIdempotencyKey = (): string =>
  Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, '0')).join('');
