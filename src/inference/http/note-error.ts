import type { ApiError, ErrorCode } from '../../platform/errors.ts';
import { publicIdOf } from '../../platform/ids/uuid.ts';
import { knownModel } from '../pipeline/access.ts';
import type { Refused } from '../pipeline/error-counts.ts';
import type { CallRecord } from './call-record.ts';
import type { Exchange } from './exchange.ts';

/** Counts a request that has ended with an error for the account whose key it has; `refused`: before any of it could be charged. */
export function noteError(call: CallRecord, refused: ApiError | undefined): void {
  const { caller, receipt, order, host, lease, startedAt, modelAsked } = call;
  const code = receipt === undefined ? refused?.code : (receipt.errorCode as ErrorCode | null);
  if (caller === undefined || code === undefined || code === null) return;
  const { errorCounts } = host.services;
  const modelId = order?.model.id ?? knownModel(modelAsked, caller, lease.runtimeConfig.catalog, startedAt);
  const outcome = { accountId: caller.account.id, keyId: caller.key.id, modelId, code };
  if (receipt !== undefined) errorCounts.failed(outcome);
  else if (refused !== undefined) errorCounts.refused(outcome, refusedOf(call, refused));
}

/** A request whose key is not live. Whether its account requires zero data retention is not known. */
export function noteRefusedKey({ host, id, keyHash, error }: Exchange): void {
  if (keyHash === undefined || error?.code !== 'invalid_api_key') return;
  const { message } = error;
  host.services.errorCounts.refusedKey(keyHash, { requestId: id, publicId: publicIdOf(id), clientId: null, message });
}

function refusedOf({ id, publicId, clientId, headers, caller, zdr }: CallRecord, { code, message }: ApiError): Refused {
  // §4.2.6: nothing chosen by the client, even where the header is not valid.
  const isKept = !zdr && headers['service-zdr'] === undefined && caller?.account.zdrRequired !== true;
  return {
    requestId: id,
    publicId: isKept ? publicId : publicIdOf(id),
    clientId: isKept ? clientId : null,
    message: isKept && !quoting.has(code) ? message.slice(0, messageLengthMax) : null,
  };
}

const messageLengthMax = 500;

/** The messages of these may quote the request: names of tools and models, keys of schemas, parts of patterns. None is kept. */
const quoting: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  'duplicate_tool_name',
  'json_schema_refs_unsupported',
  'model_not_found',
  'model_request_rejected',
  'orphan_tool_message',
  'tool_choice_unknown_tool',
  'tool_schema_invalid',
  'unsupported_regex',
  'unsupported_tool_type',
  'unsupported_value',
]);
