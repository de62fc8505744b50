import { continuesLast } from '../../../generation/request.ts';
import type { EngineRequest } from '../../../generation/request.ts';
import { UsageTally } from '../usage-tally.ts';
import { boundOf } from './answer-guard.ts';
import type { ChunkShapes } from './chunk-template.ts';
import { asksForEcho } from './completion-fields.ts';
import { ChunkDecoder } from './decode/decoder.ts';
import { loggedWord } from './decode/finishes.ts';
import { EchoedBeginning } from './echoed-beginning.ts';
import { ownEcho } from './echoed-prompt.ts';
import type { Flavor } from './flavors/flavor.ts';
import type { BackendIncident } from './incidents.ts';
import type { OutgoingRequest } from './outgoing-request.ts';
import type { UpstreamServer } from './request-body.ts';
import type { ServedModel } from './served-model.ts';
import { guarded } from './special-tokens.ts';
import type { SpecialTokens } from './special-tokens.ts';

/** A server, and what its answers have in common. */
export interface DecodingBackend {
  readonly server: UpstreamServer;
  readonly shapes: ChunkShapes;
  readonly served: ServedModel;
  readonly note: (incident: BackendIncident['incident'], cause: string | null) => void;
}

/** Returns the decoder for the answer to a request, which knows what was asked and how it was sent. */
export function decoderOf(
  request: EngineRequest,
  sent: OutgoingRequest,
  { server, shapes, served, note }: DecodingBackend,
): ChunkDecoder {
  const { flavor } = server;
  const prompts = request.prompt.type === 'messages' ? 1 : request.prompt.prompts.length;
  const choices = prompts * request.choices;
  const tally = new UsageTally({
    choices,
    choicesPerPrompt: request.choices,
    promptTokensMin: request.prompt.type === 'texts' && request.prompt.prompts.includes('') ? 0 : 1,
    promptTokensMax: promptTokensMax(sent.textLength, sent.images),
    completionTokensMax: request.maxTokens + request.reasoningRoomTokens,
    reasons: server.reasons,
    hasTokenPerDelta: flavor.hasTokenPerDelta,
  });
  return new ChunkDecoder({
    shapes,
    served,
    echo: echoOf(request, sent.body, flavor),
    requestId: request.id,
    choices,
    choicesPerPrompt: request.choices,
    maxTokens: request.maxTokens + request.reasoningRoomTokens,
    reasoningForm: request.reasoningForm,
    splitsThinking: server.reasons && request.reasoningForm !== 'inline',
    logprobs: request.logprobs,
    takesOneCall: !request.parallelToolCalls,
    closingUsage: flavor.closingUsage,
    bound: boundOf(request, flavor, server.reasons && request.reasoningForm === 'inline'),
    stops: flavor.keepsStop ? request.stop : undefined,
    endsCallsWithoutReason: flavor.endsCallsWithoutReason,
    onUnchecked: () => note('constraint_not_checked', null),
    toolNames: request.tools.map(({ name }) => name),
    onUnknownFinish: (word) => note('unknown_finish', loggedWord(word)),
    tally,
    ...(request.prompt.type === 'messages'
      ? {}
      : {
          completion: {
            prompts: readyPrompts(request, server.specialTokens),
            isEchoed: asksForEcho(request),
            ownEcho: (index) => ownEcho(request, index),
            returnsIds: request.tokens?.returnsIds ?? false,
            hasLogprobs: request.logprobs !== undefined,
          },
        }),
  });
}

/** Returns the words that this server repeats before it continues them, as they were sent to it. */
function echoOf(
  { prompt }: EngineRequest,
  { messages }: OutgoingRequest['body'],
  flavor: Flavor,
): EchoedBeginning | undefined {
  if (!flavor.echoesBeginning || !continuesLast(prompt)) return undefined;
  const last = (messages as readonly { readonly content?: unknown }[]).at(-1)?.content;
  return typeof last === 'string' ? new EchoedBeginning(last) : undefined;
}

/** Returns the prompts as sent to the server, because they come back in this form. */
function readyPrompts(
  request: EngineRequest,
  specialTokens: SpecialTokens,
): readonly string[] | readonly (readonly number[])[] {
  const { prompt } = asksForEcho(request) ? guarded(request, specialTokens) : request;
  return prompt.type === 'messages' ? [] : prompt.prompts;
}

/**
 * Returns the maximum tokens of a prompt. No tokenizer makes more tokens than there are bytes; the rest covers a chat template's own text,
 * and images.
 */
const promptTokensMax = (textBytes: number, images: number): number => textBytes + 8_192 + images * 65_536;
