"""The log as a whole: backed up, signed for, folded afresh and compared, and weighed before its rules change."""
