import { ApiError } from '../../platform/errors.ts';
import { inferenceRoutes } from './routes.ts';

/** Routes of the inference host below `/v1`, without their parameters. */
const paths: readonly string[] = [
  ...inferenceRoutes.keys(),
  '/v1/models',
  '/v1/files',
  '/v1/batches',
  '/v1/messages/batches',
];

/**
 * The first segments after `/v1/` in the account host's routes, and after `/` in its pages. That is another server, of which this one only
 * knows the address; a test compares the list with its routes.
 */
export const accountSegments: ReadonlySet<string> = new Set([
  ...[
    'account',
    'activity',
    'admin',
    'audit_logs',
    'auth',
    'batch_runs',
    'costs',
    'credits',
    'errors',
    'export',
    'generation',
    'generations',
    'heads',
    'invites',
  ],
  ...[
    'invoices',
    'key',
    'keys',
    'latency',
    'ledger',
    'limits',
    'me',
    'members',
    'owner',
    'payments',
    'receipts',
    'refusals',
    'roles',
    'spend_alerts',
    'spend_limit',
  ],
  ...['server', 'usage', 'webhook_deliveries', 'webhook_endpoints', 'webhooks'],
]);
const accountPages: ReadonlySet<string> = new Set([
  'docs',
  'heads',
  'metrics',
  'sign-in',
  'sign-up',
  'topup',
  'welcome',
]);

/** The 404 of the inference host: says where to go, if the path shows what was meant. Repeats nothing of the path. */
export function noInferenceRoute(path: string, accountUrl: string): ApiError {
  const [, first = '', second = ''] = path.split('/');
  if (first === 'v1' && accountSegments.has(second))
    return notHere(`Accounts, keys and credit are on the account host: use ${accountUrl}/v1/${second}.`);
  if (accountPages.has(first)) return notHere(`This page is at ${accountUrl}/${first}.`);
  const meant = inferencePath(path);
  if (meant !== undefined)
    return notHere(
      `Use ${meant}. The base URL of OpenAI's clients ends in /v1, that of Anthropic's is the address alone.`,
    );
  return notHere(`This host has ${paths.join(', ')}; GET /openapi.json describes them.`);
}

/** The 404 of the account host for paths meant for the inference host, or missing `/v1`; `undefined` for any other path. */
export function noAccountRoute(path: string, inferenceUrl: string | undefined): ApiError | undefined {
  const meant = inferencePath(path);
  if (meant !== undefined)
    return notHere(
      `Models are called at the inference host: use ${inferenceUrl ?? 'its address, and there '}${meant}.`,
    );
  const [, first = ''] = path.split('/');
  return accountSegments.has(first) && !accountPages.has(path.slice(1)) ? notHere(`Use /v1/${first}.`) : undefined;
}

/** The inference route that a client with a wrong base URL meant. */
function inferencePath(path: string): string | undefined {
  const trimmed = path.replace(/\/{2,}/g, '/').replace(/\/$/, '');
  return paths.find((known) => {
    const own = known.slice('/v1'.length);
    return trimmed.endsWith(own) && /^(\/(v1|v2|api|openai|anthropic))*$/i.test(trimmed.slice(0, -own.length));
  });
}

const notHere = (where: string): ApiError => new ApiError('http_404', `Route not found. ${where}`);
