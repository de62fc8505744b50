/** A first question, and words of which a sensible answer has at least one. */
export interface EverydayPrompt {
  readonly prompt: string;
  /** In lower case; a word matches inside longer ones. */
  readonly about: readonly string[];
}

/** What newcomers write first: greetings, facts, small tasks and advice, all in English. */
export const everydayPrompts: readonly EverydayPrompt[] = [
  { prompt: 'Say hello', about: ['hello', 'hi ', 'hi!', 'hi,', 'welcome', 'glad', 'help', 'assist'] },
  { prompt: 'Hello!', about: ['hello', 'hi ', 'hi!', 'help', 'welcome'] },
  { prompt: 'Hi, how are you?', about: ['well', 'good', 'fine', 'great', 'help', 'assist', 'thank'] },
  { prompt: 'Good morning', about: ['morning', 'hello', 'help', 'day'] },
  { prompt: 'Who are you?', about: ['assistant', 'ai', 'model', 'help'] },
  { prompt: 'What can you do?', about: ['help', 'assist', 'answer', 'write'] },
  { prompt: 'Thank you!', about: ['welcome', 'help', 'glad', 'happy', 'pleasure'] },
  { prompt: 'Goodbye', about: ['bye', 'day', 'care', 'help', 'see you', 'well'] },
  { prompt: 'Tell me a joke', about: ['why', 'what', 'because', 'joke', 'knock'] },
  { prompt: 'Wish me luck', about: ['luck', 'best', 'success', 'wish'] },
  { prompt: 'What is the capital of France?', about: ['paris'] },
  { prompt: 'What is the capital of Japan?', about: ['tokyo'] },
  { prompt: 'What is the capital of Italy?', about: ['rome'] },
  { prompt: 'How many days are in a week?', about: ['seven', '7'] },
  { prompt: 'What color is the sky?', about: ['blue'] },
  { prompt: 'What is two plus two?', about: ['four', '4'] },
  { prompt: 'Who wrote Romeo and Juliet?', about: ['shakespeare'] },
  { prompt: 'What is the largest ocean?', about: ['pacific'] },
  { prompt: 'At what temperature does water boil?', about: ['100', '212'] },
  { prompt: 'What do bees make?', about: ['honey'] },
  { prompt: 'Which planet is closest to the sun?', about: ['mercury'] },
  { prompt: 'What is the opposite of hot?', about: ['cold', 'cool'] },
  { prompt: 'What language is spoken in Brazil?', about: ['portuguese'] },
  { prompt: 'How many legs does a spider have?', about: ['eight', '8'] },
  { prompt: 'What is a computer?', about: ['machine', 'device', 'information', 'data'] },
  { prompt: 'What is the internet?', about: ['network', 'computers', 'information'] },
  { prompt: 'What is photosynthesis?', about: ['plant', 'light', 'sun'] },
  { prompt: 'What is gravity?', about: ['force', 'mass', 'earth', 'attract'] },
  { prompt: 'Why is exercise good for you?', about: ['health', 'heart', 'muscle', 'body'] },
  { prompt: 'Why do we sleep?', about: ['rest', 'body', 'brain', 'energy'] },
  { prompt: 'What is machine learning?', about: ['data', 'learn', 'algorithm'] },
  { prompt: 'What is Python?', about: ['program', 'language', 'snake'] },
  { prompt: 'What is democracy?', about: ['people', 'government', 'vote'] },
  { prompt: 'Explain rain to a child', about: ['water', 'cloud', 'drop'] },
  { prompt: 'What is inflation?', about: ['price', 'money', 'econom'] },
  { prompt: 'Write a haiku about the sea', about: ['sea', 'wave', 'ocean', 'blue', 'water'] },
  { prompt: 'Write a sentence about cats', about: ['cat'] },
  { prompt: 'Write a short poem about spring', about: ['spring', 'flower', 'bloom', 'green'] },
  { prompt: 'Write a birthday greeting for my friend Anna', about: ['birthday', 'anna'] },
  { prompt: 'Write a short thank-you note to my neighbor', about: ['thank', 'neighbor', 'grateful', 'appreciat'] },
  { prompt: 'Write a story about a dog in three sentences', about: ['dog', 'puppy'] },
  { prompt: 'Write an email that I will be late today', about: ['late', 'delay'] },
  { prompt: 'Suggest a name for a bakery', about: ['bak', 'bread', 'sweet', 'cake', 'oven', 'crumb', 'flour'] },
  { prompt: 'Name three fruits', about: ['apple', 'banana', 'orange', 'fruit', 'berr', 'grape', 'mango'] },
  { prompt: 'Name three colors', about: ['red', 'blue', 'green', 'yellow'] },
  { prompt: 'List five animals', about: ['dog', 'cat', 'lion', 'elephant', 'bear', 'tiger', 'horse'] },
  { prompt: 'Count from one to five', about: ['one', '1', 'two', '2'] },
  { prompt: 'Give me a synonym for happy', about: ['joy', 'glad', 'cheer', 'content', 'delight', 'pleased'] },
  { prompt: 'Translate "good night" into Spanish', about: ['buenas noches', 'noche'] },
  { prompt: 'Correct this sentence: she go to school', about: ['goes', 'school'] },
  { prompt: 'What should I cook tonight?', about: ['cook', 'chicken', 'pasta', 'recipe', 'dish', 'vegetable'] },
  { prompt: 'How do I make tea?', about: ['water', 'tea'] },
  { prompt: 'How do I boil an egg?', about: ['egg', 'water'] },
  { prompt: 'Give me a tip for better sleep', about: ['sleep', 'bed', 'night'] },
  { prompt: 'How can I learn to swim?', about: ['swim', 'water', 'lesson'] },
  { prompt: 'How can I save money?', about: ['money', 'budget', 'save', 'spend'] },
  { prompt: 'What should I pack for a beach trip?', about: ['sun', 'towel', 'swim', 'beach', 'water'] },
  { prompt: 'Recommend a book', about: ['book', 'novel', 'read', 'by '] },
  { prompt: 'How do I start a garden?', about: ['garden', 'soil', 'plant', 'seed'] },
  { prompt: 'How do I calm down before an exam?', about: ['breath', 'relax', 'calm', 'stress', 'exam'] },
];

/** Longest answer that counts as one that ended by itself. */
export const everydayTokensMax = 300;

export const everydayFaults = ['language', 'repetition', 'length', 'stop', 'topic'] as const;
export type Fault = (typeof everydayFaults)[number];

/**
 * What is wrong with an answer to an everyday prompt, as far as a program can tell; empty: nothing.
 *
 * - `language`: a letter in fifty is not Latin, or, from twelve words on, fewer than one word in six is a common English one.
 * - `repetition`: a line or sentence of four words or more comes twice, or a fifth of all sequences of four words do.
 * - `length`: nothing, or more than 220 words.
 * - `stop`: cut off instead of ended by the model.
 * - `topic`: none of the words that it must be about.
 */
export function faultsOf({ about }: EverydayPrompt, answer: string, finish: string | undefined): readonly Fault[] {
  const text = answer.toLowerCase();
  const words = text.match(/[\p{L}\p{N}']+/gu) ?? [];
  const checks: Readonly<Record<Fault, boolean>> = {
    language: isEnglish(text, words),
    repetition: !repeatsItself(text, words),
    length: words.length >= 1 && words.length <= 220,
    stop: finish === 'stop',
    topic: about.some((word) => `${text} `.includes(word)),
  };
  return everydayFaults.filter((fault) => !checks[fault]);
}

function isEnglish(text: string, words: readonly string[]): boolean {
  const letters = text.match(/\p{L}/gu)?.length ?? 0;
  const latin = text.match(/\p{Script=Latin}/gu)?.length ?? 0;
  const common = words.filter((word) => commonWords.has(word)).length;
  return latin >= letters * 0.98 && (words.length < 12 || common * 6 >= words.length);
}

function repeatsItself(text: string, words: readonly string[]): boolean {
  const sentences = text
    .split(/[.!?\n]+/)
    .map((sentence) => sentence.replaceAll(/[^\p{L}\p{N} ]/gu, '').trim())
    .filter((sentence) => sentence.split(/ +/).length >= 4);
  if (new Set(sentences).size < sentences.length) return true;
  const fours = words.slice(3).map((_, index) => words.slice(index, index + 4).join(' '));
  return fours.length - new Set(fours).size > fours.length / 5;
}

const commonWords: ReadonlySet<string> = new Set(
  (
    'the a an of to in is are was be been it its that this these those for on with as at by from or and but not no you your i my ' +
    'me we our they their he she his her have has had do does can will would should could may what when where which who how why ' +
    'if so all any some more most one two about into than then there here up out just like also very'
  ).split(' '),
);
