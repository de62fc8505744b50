import type { Translated } from '../../../i18n/text.ts';
import type { StartTexts } from './en.ts';

const de: Translated<StartTexts> = {
  answer: 'Antwort',
  arrived: 'Sie ist da: {model}, {tokens} Tokens, {cost}.',
  balanceNote: 'Jede Anfrage hat einen Preis und einen Beleg.',
  createKey: 'Schlüssel anlegen',
  example: 'Was ist die Hauptstadt von Frankreich?',
  failed: 'Der Inferenz-Host ist von diesem Browser unter {url} nicht erreichbar.',
  firstToken: 'erstes Token nach {time}',
  keyPlaceholder: 'Ihr Schlüssel',
  lead: 'Von hier zu Ihrer ersten eigenen Anfrage in einer Minute.',
  makeKey: 'Legen Sie einen Schlüssel an und geben Sie ihn Ihrem Programm.',
  mistake1:
    'In der Adresse fehlt /v1, oder es steht zweimal da: Clients von OpenAI nehmen {url}/v1, die von Anthropic {url}.',
  mistake2: 'Es ist ein anderer Schlüssel: Suchen Sie 401 invalid_api_key in der Antwort.',
  mistake3: 'Das Programm läuft anderswo: {url} ist nur dort erreichbar, wo dieser Server horcht.',
  mistakes: 'Noch nichts? Die drei üblichen Gründe',
  model: 'Modell',
  noModels: 'Dieser Server hat kein Modell für dieses Konto. Fragen Sie den Betreiber.',
  prompt: 'Ihre Frage',
  send: 'Erste Anfrage senden',
  step1: '1. Fragen Sie das Modell von hier',
  step2: '2. Rufen Sie es aus Ihrem Programm auf',
  step3: '3. Ihre eigene Anfrage kommt an',
  stop: 'Anhalten',
  title: 'Start',
  useKey: 'Die Anfrage nutzt den Schlüssel dieser Sitzung; Sie müssen keinen anlegen.',
  waiting: 'Warten auf die erste Anfrage eines Schlüssels…',
};

export default de;
