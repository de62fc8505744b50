import { getLlama, LlamaLogLevel } from 'node-llama-cpp';

/** llama.cpp's own word on a grammar, without a model. */
export interface GrammarJudge {
  /** Whether each text matches as a whole. Throws when llama.cpp does not take the grammar. */
  accepts(gbnf: string, texts: readonly string[]): Promise<readonly boolean[]>;
  dispose(): Promise<void>;
}

export async function openGrammarJudge(): Promise<GrammarJudge> {
  const llama = await getLlama({
    gpu: false,
    build: 'never',
    skipDownload: true,
    progressLogs: false,
    logLevel: LlamaLogLevel.disabled,
    logger: () => {},
  });
  return {
    accepts: async (gbnf, texts) => {
      const grammar = (await llama.createGrammar({ grammar: gbnf })) as unknown as {
        readonly _testText: (text: string) => boolean;
      };
      return texts.map((text) => grammar._testText(text));
    },
    dispose: () => llama.dispose(),
  };
}
