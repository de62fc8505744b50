export interface RequestIds {
  /** Sent as `x-request-id` and `request-id` of the answer. */
  readonly publicId: string;
  /** The client's id, made safe for headers and logs; null when it sent nothing usable. */
  readonly clientId: string | null;
}

const clientIdLengthMax = 128;

/**
 * Contracts decision 11, specification §5.7: a value of our own form (a chained gateway's) is echoed as it is, any other is made
 * header-safe and echoed with the `client_` prefix; without a value it is `own`, of the form `req_<12 hex>`.
 */
export function requestIds(sent: string | readonly string[] | undefined, own: string): RequestIds {
  const value = typeof sent === 'string' || sent === undefined ? sent : sent[0];
  if (value === undefined) return { publicId: own, clientId: null };
  if (/^req_[0-9a-f]{12}$/.test(value)) return { publicId: value, clientId: value };
  const safe = value.replaceAll(/[^\x21-\x7e]/g, '').slice(0, clientIdLengthMax);
  return safe === '' ? { publicId: own, clientId: null } : { publicId: `client_${safe}`, clientId: safe };
}

/**
 * The ids that are stored: nothing chosen by the client when it asks for zero data retention (§4.2.6, reliability part 4), even
 * in a form that is refused. The answer still echoes it.
 */
export const keptIds = (ids: RequestIds, zdr: string | readonly string[] | undefined, own: string): RequestIds =>
  zdr === undefined ? ids : { publicId: own, clientId: null };
