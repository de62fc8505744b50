import type { Translated } from '../../../i18n/text.ts';
import type { OverviewTexts } from './en.ts';

const zh: Translated<OverviewTexts> = {
  allRequests: '全部请求',
  available: '可用',
  chart: '最近 {days} 天的支出',
  cost: '费用',
  createKey: '创建密钥',
  firstRequest: '发送第一个请求',
  held: '预留',
  heldBy: { other: '{n} 个进行中的请求' },
  input: '输入 Token',
  latest: '最近的请求',
  model: '模型',
  month: '本月支出',
  noneOfYours: '还没有您的请求',
  noneOfYoursText: '此处显示您自己密钥的请求，上方显示整个账户的支出。',
  ofBalance: '余额 {amount}',
  otherModels: '其他模型',
  output: '输出 Token',
  start: '开始',
  state: '状态',
  title: '概览',
  today: '今日支出',
  unused: '还没有任何请求',
  unusedText: '开始页面可以直接向模型提问，并展示程序如何调用。',
  usage: '用量',
  when: '时间',
  zone: '时区 {zone}',
};

export default zh;
