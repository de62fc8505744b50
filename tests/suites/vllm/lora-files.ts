import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { mulberry32 } from '../../support/random.ts';

/** The shape of the default model. */
const layers = 30;
const width = 576;

/** Writes an adapter of random weights for the default model, strong enough that its answers are others. */
export function writeLora(folder: string, seed: number, rank = 8): void {
  const random = mulberry32(seed);
  const tensors = Array.from({ length: layers }, (_, layer) =>
    (['A', 'B'] as const).map((part) => ({
      name: `base_model.model.model.layers.${layer}.self_attn.o_proj.lora_${part}.weight`,
      shape: part === 'A' ? [rank, width] : [width, rank],
      values: Float32Array.from({ length: rank * width }, () => (random() - 0.5) * 0.2),
    })),
  ).flat();
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'adapter_model.safetensors'), safetensors(tensors));
  writeFileSync(
    join(folder, 'adapter_config.json'),
    JSON.stringify({
      ...{ peft_type: 'LORA', task_type: 'CAUSAL_LM', base_model_name_or_path: 'smollm2', inference_mode: true },
      ...{ r: rank, lora_alpha: 4 * rank, lora_dropout: 0, bias: 'none', target_modules: ['o_proj'] },
    }),
  );
}

interface Tensor {
  readonly name: string;
  readonly shape: readonly number[];
  readonly values: Float32Array;
}

/** The length of the head, the head with the place of each tensor, and the tensors. */
function safetensors(tensors: readonly Tensor[]): Buffer {
  let end = 0;
  const places = tensors.map(({ name, shape, values }) => {
    const begin = end;
    end += values.byteLength;
    return [name, { dtype: 'F32', shape, data_offsets: [begin, end] }] as const;
  });
  const head = Buffer.from(JSON.stringify(Object.fromEntries(places)));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(head.length));
  return Buffer.concat([length, head, ...tensors.map(({ values }) => Buffer.from(values.buffer))]);
}
