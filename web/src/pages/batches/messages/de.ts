import type { Translated } from '../../../i18n/text.ts';
import type { BatchTexts } from './en.ts';

const de: Translated<BatchTexts> = {
  answered: 'Beantwortet',
  batch: 'Stapel',
  cancel: 'Abbrechen',
  cancelAsk: 'Diesen Stapel anhalten?',
  cancelled: 'abgebrochen',
  cancelling: 'hält an',
  cancelText: 'Laufende Anfragen halten an und kosten nichts. Was fertig ist, wird berechnet und geliefert.',
  close: 'Schließen',
  completed: 'fertig',
  cost: 'Kosten',
  created: 'Erstellt',
  download: 'Mit einem Schlüssel herunterladen',
  empty: 'Noch kein Stapel',
  emptyText:
    'Ein Stapel ist eine Liste von Anfragen, die laufen, während niemand sonst die Leistung braucht, und die weniger kosten. Programme legen ihn an:',
  ended: 'Beendet',
  endsBy: 'Endet bis',
  expired: 'abgelaufen',
  failed: 'abgelehnt',
  faults: 'Was an der Datei falsch ist',
  finalizing: 'schreibt Ergebnisse',
  for: 'Für',
  in_progress: 'läuft',
  key: 'Schlüssel',
  lead: 'Anfragen, die laufen, während niemand sonst wartet: wie weit sie sind, was sie kosten und wie man die Antworten bekommt.',
  line: 'Zeile {line}',
  of: '{done} von {total}',
  ofUnanswered: '{done} von {total} · {n} ohne Antwort',
  progress: 'Fortschritt',
  saveAnswers: 'Antworten speichern',
  saveErrors: 'Zeilen ohne Antwort speichern',
  state: 'Zustand',
  title: 'Stapel',
  validating: 'wird geprüft',
  withoutAnswer: 'Ohne Antwort',
};

export default de;
