import type { Translated } from '../../../i18n/text.ts';
import type { OverviewTexts } from './en.ts';

const de: Translated<OverviewTexts> = {
  allRequests: 'Alle Anfragen',
  available: 'Verfügbar',
  chart: 'Ausgaben der letzten {days} Tage',
  cost: 'Kosten',
  createKey: 'Schlüssel anlegen',
  firstRequest: 'Erste Anfrage senden',
  held: 'Reserviert',
  heldBy: { one: 'von {n} laufenden Anfrage', other: 'von {n} laufenden Anfragen' },
  input: 'Tokens hinein',
  latest: 'Letzte Anfragen',
  model: 'Modell',
  month: 'Diesen Monat ausgegeben',
  noneOfYours: 'Noch keine von Ihnen',
  noneOfYoursText: 'Hier sehen Sie die Anfragen Ihrer eigenen Schlüssel, darüber die Ausgaben des ganzen Kontos.',
  ofBalance: 'von {amount} Guthaben',
  otherModels: 'Andere Modelle',
  output: 'Tokens heraus',
  start: 'Start',
  state: 'Stand',
  title: 'Übersicht',
  today: 'Heute ausgegeben',
  unused: 'Noch keine Anfragen',
  unusedText: 'Die Startseite fragt ein Modell von hier aus und zeigt, wie ein Programm es tut.',
  usage: 'Nutzung',
  when: 'Wann',
  zone: 'in der Zeitzone {zone}',
};

export default de;
