"""The style sheet of the page: light and dark, wide and narrow, screen and paper."""

STYLE = """
:root{color-scheme:light dark;
--paper:#fdfdfc;--ink:#1d2430;--muted:#5d6878;--rule:#e2e5ea;--soft:#f3f5f7;--good:#17714f;--goodbg:#eaf5f0;
--bad:#a8321f;--badbg:#fbeeeb;
--c0:#2563a8;--c1:#c2571a;--c2:#16866a;--c3:#8449bd;--c4:#96700a;--c5:#bd3768;--c6:#4d7a1f;--c7:#66707f}
@media(prefers-color-scheme:dark){:root{
--paper:#14171c;--ink:#e4e8ee;--muted:#9aa5b4;--rule:#2b313a;--soft:#1c2128;--good:#6fd0a8;--goodbg:#172b25;
--bad:#f39a88;--badbg:#331d1a;
--c0:#6aa9f0;--c1:#f0935a;--c2:#4cc7a2;--c3:#bd92ea;--c4:#dcb247;--c5:#f080a6;--c6:#9cc466;--c7:#a3acb8}}
.h0{background:#f1f6fc;color:#10233a}.h1{background:#d6e5f6;color:#10233a}
.h2{background:#bad4f0;color:#10233a}.h3{background:#9fc3ea;color:#10233a}
.h4{background:#7caadc;color:#10233a}.h5{background:#5890cd;color:#10233a}
.h6{background:#3577bf;color:#ffffff}.h7{background:#2761a0;color:#ffffff}
.h8{background:#1a4a82;color:#ffffff}.h9{background:#0c3463;color:#ffffff}
@media(prefers-color-scheme:dark){
.h0{background:#18222f;color:#f4f8fd}.h1{background:#1a2d45;color:#f4f8fd}
.h2{background:#1d395a;color:#f4f8fd}.h3{background:#1f4470;color:#f4f8fd}
.h4{background:#2c5a8e;color:#f4f8fd}.h5{background:#3971ad;color:#f4f8fd}
.h6{background:#4687cb;color:#0a1626}.h7{background:#6ea5dc;color:#0a1626}
.h8{background:#97c2ee;color:#0a1626}.h9{background:#bfe0ff;color:#0a1626}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;scroll-behavior:smooth}
body{margin:0;background:var(--paper);color:var(--ink);
font:16px/1.6 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
main{max-width:1080px;margin:0 auto;padding:56px 28px 96px}
h1{font-size:2.1rem;line-height:1.2;letter-spacing:-.02em;margin:0 0 8px;font-weight:650}
h2{font-size:1.35rem;letter-spacing:-.01em;margin:72px 0 6px;font-weight:650;scroll-margin-top:16px}
p{max-width:72ch;margin:0 0 18px}
.facts,.scale,.more{color:var(--muted)}
.facts{margin-bottom:28px}
nav{margin:28px 0 0;font-size:.92rem}
nav a{display:inline-block;margin:0 18px 6px 0;color:var(--muted);text-decoration:none;
border-bottom:1px solid var(--rule)}
nav a:hover,nav a:focus{color:var(--ink);border-color:var(--ink)}
.proof{list-style:none;margin:0;padding:14px 20px;border-radius:10px;background:var(--goodbg);
border-left:4px solid var(--good)}
.proof li{font-weight:550;font-variant-numeric:tabular-nums}
.proof li::before{content:"✓";color:var(--good);font-weight:700;margin-right:10px}
.proof .changed::before{content:"✗";color:var(--bad)}
.proof.bad{background:var(--badbg);border-color:var(--bad)}
.scroll{overflow:auto;max-height:85vh;margin:0 0 20px;border:1px solid var(--rule);border-radius:10px}
table{border-collapse:separate;border-spacing:0;width:100%;font-size:.93rem;font-variant-numeric:tabular-nums}
caption{text-align:left;padding:12px 16px;color:var(--muted);font-size:.9rem}
th,td{padding:7px 16px;text-align:right;border-top:1px solid var(--rule);white-space:nowrap}
th[scope=row],thead th:first-child{text-align:left;font-weight:450;white-space:normal}
thead th{position:sticky;top:0;z-index:2;background:var(--soft);font-weight:600;vertical-align:bottom;
white-space:normal}
thead th:first-child{width:36%}
thead td{position:sticky;top:0;left:0;z-index:3;background:var(--soft)}
.scroll th[scope=row]{position:sticky;left:0;background:var(--paper);z-index:1;min-width:180px}
th small{display:block;color:var(--muted);font-size:.8rem;line-height:1.3}
td.best{font-weight:700}
td.best::after{content:" ★";font-size:.72em;color:var(--c0)}
td:not(.best).num::after{content:" ★";font-size:.72em;visibility:hidden}
tr.section th{text-align:left;color:var(--muted);font-weight:600;font-size:.8rem;letter-spacing:.06em;
text-transform:uppercase;padding-top:16px;background:var(--paper)}
tr.part th,tr.part td{color:var(--muted);border-top:0;padding-top:0}
tr.part th{padding-left:32px}
.heat{font-size:.8rem}
.heat th,.heat td{padding:5px 6px;text-align:center;border:0}
.heat th[scope=row]{text-align:left;padding-left:16px;min-width:150px;line-height:1.25}
.heat th[scope=row] b{display:inline-block;min-width:1.9em;color:var(--muted);font-weight:600}
.heat td{min-width:44px}
.heat caption{font-weight:600;color:var(--ink)}
.scale{display:flex;align-items:center;gap:0;font-size:.85rem;margin:0 0 18px}
.scale i{width:22px;height:12px}
.scale span{margin:0 10px 0 0}.scale i+span{margin:0 0 0 10px}
.maps{display:grid;gap:4px}
.pictures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));gap:28px 36px}
.panels{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(45%,190px),1fr));gap:18px 22px}
figure{margin:0;min-width:0}
figure svg{display:block;width:100%;height:auto}
figcaption{font-weight:600;font-size:.92rem;margin-bottom:6px}
.small figcaption{font-weight:450;font-size:.82rem;line-height:1.25;min-height:2.5em;display:flex;align-items:flex-end}
svg text{fill:var(--muted);font-size:12.5px;font-variant-numeric:tabular-nums}
.small text{font-size:10.5px}
svg text.name{fill:var(--ink);font-size:13.5px}
.line{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
.dot{stroke:var(--paper);stroke-width:1.2}
.grid,.axis{fill:none;stroke:var(--rule);stroke-width:1}.axis{stroke:var(--muted)}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:4px 24px;margin:0 0 18px;padding:0;font-size:.9rem}
.legend svg{width:34px;height:14px;vertical-align:-2px;margin-right:8px}
.bars th,.bars td{border:0;padding:5px 0}
.bars caption{padding-left:0}
.bars th[scope=row]{width:26%;padding-right:16px;line-height:1.3}
.bars tr.section th{padding-top:14px}
.bars td{background:linear-gradient(var(--muted),var(--muted)) center/1px 100% no-repeat}
.bar{position:relative;height:15px;margin:1px 0}
.bar i{position:absolute;top:2px;bottom:2px;min-width:1px;border-radius:2px}
.bar em{position:absolute;top:0;font:11.5px/15px inherit;font-style:normal;font-size:11.5px;line-height:15px;
color:var(--muted);padding:0 6px}
details{margin:20px 0 0}
summary{cursor:pointer;color:var(--muted);padding:6px 0}
details[open] summary{margin-bottom:12px}
pre{overflow:auto;background:var(--soft);border-radius:10px;padding:14px 18px;margin:0 0 20px;
font:14px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
dl{display:grid;grid-template-columns:max-content 1fr;gap:4px 24px;margin:0 0 20px;font-size:.93rem}
dt{color:var(--muted)}dd{margin:0;overflow-wrap:anywhere}
@media(max-width:600px){main{padding:32px 16px 64px}.scroll th[scope=row]{min-width:100px}
h1{font-size:1.6rem}h2{margin-top:52px}
th,td{padding:6px 9px}.scroll .heat th[scope=row]{min-width:128px;max-width:128px;padding-left:9px}
tr.part th{padding-left:18px}
.bars th[scope=row]{width:34%;font-size:.85rem;padding-right:10px}table{font-size:.86rem}.heat{font-size:.76rem}
svg text{font-size:14px}.small text{font-size:11px}svg text.name{font-size:15.5px}}
@media print{.scroll{max-height:none;overflow:visible}nav{display:none}main{padding:0;max-width:none}
h2{break-after:avoid}figure,tr{break-inside:avoid}}
"""
