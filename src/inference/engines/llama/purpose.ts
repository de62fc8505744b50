import type { GgufHeader } from './gguf-header.ts';
import { ModelRefused } from './model-refused.ts';

/** What a file is loaded for: a model writes answers, embeds texts, or ranks them. */
export type Purpose = 'write' | 'embed' | 'rank';

/** Returns what a file was made for. */
export function purposeOf({ pooling, hasClassifier }: Pick<GgufHeader, 'pooling' | 'hasClassifier'>): Purpose {
  if (hasClassifier || pooling === 'rank') return 'rank';
  return pooling === undefined || pooling === 'none' ? 'write' : 'embed';
}

/** Throws `ModelRefused`, with the reason in words, if a file cannot do what the model's card promises. */
export function refuseOtherPurpose(header: GgufHeader, purpose: Purpose): void {
  const { pooling, hasClassifier, isCausal } = header;
  if (purpose === 'rank' && !hasClassifier)
    throw new ModelRefused('it has no classifier, so it cannot rank: remove `rerank` from its capabilities');
  if (purpose === 'embed' && (pooling === undefined || pooling === 'none' || pooling === 'rank'))
    throw new ModelRefused(
      'it does not state how the vectors of its tokens become one (`pooling_type`), so it cannot embed: remove `embeddings` from its capabilities',
    );
  if (purpose === 'write' && (!isCausal || hasClassifier)) {
    const family = purposeOf(header) === 'rank' ? 'rerank' : 'embeddings';
    throw new ModelRefused(`it cannot write: its capabilities must be \`{ ${family}: { supported: true } }\``);
  }
}
